package storetest

var timeRows []row
