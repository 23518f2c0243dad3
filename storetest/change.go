package storetest

var changeRows []row
