"""Charts as inline SVG, drawn by hand: they need no script, no font and no network, and take their colours from the page."""
