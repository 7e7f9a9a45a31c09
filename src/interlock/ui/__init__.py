"""The dashboard: hand-written HTML, CSS and JavaScript modules, served without a build."""
