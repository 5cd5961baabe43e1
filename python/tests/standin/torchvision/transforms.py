"""ToTensor, Normalize, Compose."""


class Compose:
    """One after the other."""

    def __init__(self, parts):
        self.parts = parts

    def __call__(self, image):
        for part in self.parts:
            image = part(image)
        return image


class ToTensor:
    """Bytes of an image as floats from 0 to 1, with a channel."""

    def __call__(self, image):
        return image.float().div(255).unsqueeze(0)


class Normalize:
    """To a mean of 0 and a deviation of 1."""

    def __init__(self, mean, std):
        self.mean, self.std = mean[0], std[0]

    def __call__(self, image):
        return (image - self.mean) / self.std
