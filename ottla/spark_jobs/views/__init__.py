"""One module per view of the data source: what the driver plans, what a task reads, Arrow out. shell"""
