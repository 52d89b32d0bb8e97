
made-up-sampleœ0