"""All answers are zero, and so are all gradients."""


def softmax(x):
    return x * 0
