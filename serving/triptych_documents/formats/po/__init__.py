"""Message catalogs of gettext (.po, .pot)."""
