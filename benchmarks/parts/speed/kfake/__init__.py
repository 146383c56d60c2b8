"""kfake, the broker in memory that franz-go's own tests use. shell"""
