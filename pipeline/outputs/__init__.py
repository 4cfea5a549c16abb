"""Notifications, MQTT, webhooks and message services; the process that forwards events."""
