"""What a daemon keeps and how it is read: journal, audio, labels, roll-ups, timeline, review queue."""
