"""Views of the data source, a module each: the driver plans, tasks read and return Arrow data. shell"""
