def test_sizes():
    """It is right, whatever it is."""
