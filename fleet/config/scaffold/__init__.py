"""First files for a new fleet: an inventory, a playbook and a folder, from discovered devices."""
