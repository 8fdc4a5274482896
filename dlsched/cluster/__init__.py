"""Several hosts: which node each job runs on, and when a running job moves to another one."""
