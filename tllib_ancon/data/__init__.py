"""Images in lists, folders and datasets, as domains; transforms, loading, cache."""

from tllib_ancon.data.image_source import ImageSource
from tllib_ancon.data.open import as_domain, open_domain

__all__ = ["ImageSource", "as_domain", "open_domain"]
