"""The crash that settled is for, staged with real processes: see `story`."""
