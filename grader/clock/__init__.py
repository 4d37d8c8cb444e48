"""How long a submission's calls take, by the judge's own clock."""
