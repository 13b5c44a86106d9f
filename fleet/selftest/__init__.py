"""The ladder of checks that shows which of fleet's assumptions hold on a board
(docs/selftest.md).
"""
