"""SubRip (.srt) and WebVTT (.vtt) subtitles."""
