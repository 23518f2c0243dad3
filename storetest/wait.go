package storetest

var waitRows []row
