"""Images in lists, folders and datasets, as domains; transforms, loading, cache."""

from tllib_ancon.data.domain import Domain
from tllib_ancon.data.open import as_domain, open_domain

__all__ = ["Domain", "as_domain", "open_domain"]
