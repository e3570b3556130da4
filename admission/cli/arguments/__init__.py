"""Arguments that commands share: connections, databases, object names, manifest files, quota flags."""
