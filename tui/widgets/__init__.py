"""The browser's own widgets. Each draws only the lines on the screen."""
