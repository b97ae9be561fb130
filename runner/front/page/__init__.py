"""What a browser sees at `/`: a page to try prompts, and to watch the runner."""
