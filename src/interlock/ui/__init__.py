"""The dashboard: a page of hand-written HTML, CSS and JavaScript modules, served as it lies here, without a build."""
