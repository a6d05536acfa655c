"""Document translation: read a file, translate its units sentence by sentence, write it back with everything else unchanged.

Pure code: no network, no models, and no other package of the product but `triptych_text`; any package may import it.
`format.FormatInfo.read` reads a document, `driver.DocumentDriver` moves its units through a translator, and
`Document.render` writes the translations into the document.
"""
