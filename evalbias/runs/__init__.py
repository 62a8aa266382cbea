"""Run folders: settings, journals, results, fingerprints and locks of everything that logs or resumes."""
