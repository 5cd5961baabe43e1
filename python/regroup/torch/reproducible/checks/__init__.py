"""What the ranks compare to find one that computes wrongly, and the hash of a training's state."""
