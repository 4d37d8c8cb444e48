"""What is right: float64 references, their tolerances with derivation, and the mistakes that can be recognised.

One module per problem. Each function takes the judge's inputs and gives an `Expected`, which
`grader.judge.compare.assert_matches` holds against the runner's answer.
"""
