"""The demo: four processes, each a small program of its own, and a director that starts and watches them."""
