"""Sphinx: these pages as a site, `sphinx-build -W docs site`."""

project = 'vit_jax'
extensions = ['myst_parser', 'sphinx.ext.autodoc', 'sphinx.ext.napoleon']
html_theme = 'furo'
html_title = 'vit_jax'
myst_heading_anchors = 3  # Links to headings, as GitHub has them.
autodoc_member_order = 'bysource'
autodoc_typehints = 'description'
