"""Two groups of runs side by side: same conditions? what changed, how surely, since which op?"""
