"""The two documents that are sent on: the monthly budget report and the procurement comparison."""
