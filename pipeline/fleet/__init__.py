"""Many arrays: publishing, leases, dispatching, roll-outs, one task per array wherever there is a worker."""
