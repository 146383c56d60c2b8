"""`spark.readStream.format("ottla")`: streams of growing log directories. shell"""
