"""Side by side with peers, in one run: speed and memory as figures that can be made again."""
