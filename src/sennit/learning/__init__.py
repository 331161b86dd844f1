"""Training data from conversations: examples, labels, scores, preferences and exports."""

from sennit.learning.examples import Example, Filter, merge_examples
from sennit.learning.export import ExportOptions, ExportResult
from sennit.learning.export.formats import FORMATS
from sennit.learning.labels import Label
from sennit.learning.preferences import Preference

__all__ = [
    "FORMATS",
    "Example",
    "ExportOptions",
    "ExportResult",
    "Filter",
    "Label",
    "Preference",
    "merge_examples",
]
