"""How a runner is confined: `bubblewrap` or, on a loud request, not at all.

`Bubblewrap` (recipe) and `Unconfined` start the runner's server; `why_not_confined` tries and names the remedy;
`limits` keeps processes and memory bounded. Nothing here imports torch.
"""
