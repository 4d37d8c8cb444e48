"""Speed: how it is measured, and what a measured speed is worth."""
