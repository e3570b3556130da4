"""Arguments and options shared by commands: connection, database, object names, manifest files, quota flags."""
