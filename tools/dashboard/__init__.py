"""Makes config/grafana/dlsched.json, the dashboard for Grafana (`make dashboard`).

Needs the packages of requirements/grafana.txt. Every query names the variable `instance`, every
panel the variable `datasource`: the file has no address of any installation in it.
"""
