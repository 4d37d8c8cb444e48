"""`release`: what students get. Planned by rule, scanned for what is staff's, and written whole or not at all."""
