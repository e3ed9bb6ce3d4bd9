"""From logits to the next token, and when to stop."""

from engine.sampling.params import SamplerParams
from engine.sampling.sampler import Sampler
from engine.sampling.stop import StopStrings

__all__ = ["Sampler", "SamplerParams", "StopStrings"]
