self.probed = 1;
