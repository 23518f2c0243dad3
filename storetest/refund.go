package storetest

var refundRows []row
