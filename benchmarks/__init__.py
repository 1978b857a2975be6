"""Speed and memory, measured side by side; see each module's command."""
