"""The widgets of the windows; they show the state objects of `app.models` and know neither engine nor storage."""
