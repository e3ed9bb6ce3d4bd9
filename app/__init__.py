"""The desktop program: windows, widgets, state, storage, and the bridge to the engine."""
