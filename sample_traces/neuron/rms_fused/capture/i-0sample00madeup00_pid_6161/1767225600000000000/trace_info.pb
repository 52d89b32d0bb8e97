
made-up-sample‘0