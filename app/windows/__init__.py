"""The windows: they arrange and connect the widgets."""
