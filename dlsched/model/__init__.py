"""The nouns that every layer speaks: asked, measured, decided, done. Frozen values and no more."""
