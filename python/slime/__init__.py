"""Names that users' functions import: samples, generation, rewards, filters, data sources, the agent kit.

The program (`slime train`) runs such functions in `python3 -m slime.host`. Nothing here needs a package beyond the
standard library; torch and transformers are imported where a tensor or a tokenizer is asked for.
"""

__version__ = "0.1.0"
