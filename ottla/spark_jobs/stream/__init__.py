"""`spark.readStream.format("ottla")`: log directories that grow. shell"""
